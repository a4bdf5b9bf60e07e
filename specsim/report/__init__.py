"""What people see of a study: terminal tables and a one-file HTML report."""
