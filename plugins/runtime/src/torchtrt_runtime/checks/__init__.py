"""The conditions of a call: the form and sizes of inputs, their memory, and unchanged weights."""
