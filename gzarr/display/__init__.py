"""What people see of arrays and groups: reports, drawings, HTML for notebooks."""
