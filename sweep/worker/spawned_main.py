"""What multiprocessing runs as `__mp_main__` in a process that a trial starts: the driver's script."""

if __name__ == "__mp_main__":
    from sweep.worker.script import run_script

    run_script(globals())
