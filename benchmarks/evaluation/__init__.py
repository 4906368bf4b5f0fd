"""Speed and verdicts of evaluation, and the text that is shipped."""
