"""The built-in data: text that is shipped or generated, the same on every machine.

    documents.py   Document, slices, splitting by hash of the file's name
    shipped.py     reads library.jsonl.gz, which code and prose are in (library.md says more)
    code.py        Python, from the standard library's own source (PSF licence)
    arithmetic.py  generated arithmetic and word problems
    structured.py  generated JSON, CSV, YAML and TOML
    prose.py       the Python language reference (PSF licence); trained on, not measured
    choices.py     multiple-choice items made from documents
    builtin.py     all of it, by domain
    domains/       questions and problems of the four domains, and multilingual text

It serves twice: `cognate/` trains on the train slice, and a run that is given no data of its own
measures fitness on the other slices. Nothing here imports torch.
"""
