"""Which sizes a model is compiled for: for these, and no others, its program computes what the model does.

* ``declared`` has the sizes that the caller asked for.
* ``guards`` has the conditions under which PyTorch exported the program, and ``guard_texts`` reads those of a file.
* ``questions`` notes what the model's own code asked about sizes meanwhile.
* ``calls`` has the program's ops with the shapes of their arguments, ``assumptions`` what PyTorch takes for granted of
  these, and ``points`` the sizes for which that does not hold. ``small`` runs the calls with these sizes.
* ``accepted`` evaluates all conditions, and ``narrowing`` reports what they exclude.
* ``program_sizes`` is what the pipeline asks: from what is known of a program to the profiles to build for, and the
  conditions that calls are checked for.
* ``settling`` puts numbers in place of sizes that are one number only.
"""
