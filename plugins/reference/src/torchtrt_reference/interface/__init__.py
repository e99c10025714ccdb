"""What the versions look like in Python: their descriptions, the checks of arguments, and the assembled namespaces."""
