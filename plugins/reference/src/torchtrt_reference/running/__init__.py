"""From a plan to results: runtimes, engines, execution contexts, and refitting."""
