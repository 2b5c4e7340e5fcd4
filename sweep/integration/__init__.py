"""Callbacks for training libraries and experiment trackers, under the names that Tune users import.

Each module needs its own library and imports it at once; `import sweep` imports none of them.
"""
