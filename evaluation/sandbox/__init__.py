"""Programs that models write are run here, locked in."""
