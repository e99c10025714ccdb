"""torchtrt's converter pack for ATen and for Python's operators on sizes.

One module holds the converters of one family; :mod:`impl` holds the building blocks they are made
of, which other packs may use.
"""
