"""The command line of the sweep."""

from tools.sweep.sweeping import main

main()
