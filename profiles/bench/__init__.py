"""What `make bench` measures: ratios from one run, never absolute claims."""
