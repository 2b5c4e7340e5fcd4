"""The record of a sweep on disk, and the files around it: written by one driver, read by anybody, brought back from."""
