"""The one place that knows adapters and app together.

`here` opens what reading verbs need and imports the standard library only; `session` opens what a run needs:
locks, processes, and everything else that is dear.
"""
