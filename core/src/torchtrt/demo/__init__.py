"""``python -m torchtrt.demo``: three models compiled and run with the installed packs, shown in tables."""
