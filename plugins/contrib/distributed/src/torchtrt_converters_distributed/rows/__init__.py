"""Asynchronous tensor parallelism: the rows around all-reduces, divided among the processes."""
