"""`python -m magicdec.cli`."""

from magicdec.cli.entry import main

main()
