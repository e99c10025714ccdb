"""``python -m docs.demo``: three models compiled and run with the installed packs, shown in tables."""
