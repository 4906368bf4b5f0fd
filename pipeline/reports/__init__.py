"""Report of a pipeline for people: one Markdown document, a section a phase. From the log alone."""
