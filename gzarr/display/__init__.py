"""What people see of arrays and groups: reports, drawings and HTML for notebooks."""
