"""Phase 1 in its smallest honest form: a common base and three specialists, trained here.

presets.py   sizes and lengths, frozen
model.py     tokenizer and architecture
training.py  the loop
report.py    who is best where, barriers, task vectors
create.py    all of it, into Hugging Face folders
"""
