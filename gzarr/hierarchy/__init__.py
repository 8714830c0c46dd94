"""Arrays and groups: nodes of a hierarchy, how they are made, selected, resized."""
