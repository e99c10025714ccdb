"""Which sizes a model is compiled for: for these, and no others, its program computes what the model does.

* ``declared`` has the sizes that the caller asked for.
* ``guards`` has the conditions under which PyTorch exported the program.
* ``questions`` notes what the model's own code asked about sizes meanwhile.
* ``small`` runs the program's ops with sizes of 0 and 1.
* ``accepted`` evaluates all conditions, and ``narrowing`` reports what they exclude.
* ``compiled`` is the result: profiles to build for, and conditions that calls are checked for.
* ``known`` puts numbers in place of sizes that are one number only.
"""
