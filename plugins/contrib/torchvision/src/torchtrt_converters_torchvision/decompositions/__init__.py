"""The decompositions of this pack: functions of the ops' own signatures."""
