"""What is printed: tables, plots, number lines, the live display, files."""
