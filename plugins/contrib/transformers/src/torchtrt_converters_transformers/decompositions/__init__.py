"""The pack's decompositions: each module is imported when the pack is filled."""
