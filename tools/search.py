"""Search over a local corpus by BM25.

Robertson & Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond":

    score(D, Q) = Σ_q idf(q) · f(q, D) (k₁ + 1) / (f(q, D) + k₁ (1 − b + b |D| / mean |D|))
    idf(q) = ln(1 + (N − n(q) + ½) / (n(q) + ½))

f is how often a word is in a document, n in how many of the N documents it is, |D| the words of a
document.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from agent_forge.tools.calls import ToolError

#: Saturation of a word's frequency, and how much a document's length counts.
K1, B = 1.2, 0.75


def words(text: str) -> list[str]:
    """Return the words of a text in order, of letters, digits and underscores, in lower case."""
    return re.findall(r"\w+", text.lower())


class Index:
    """Search index: the word counts of a corpus."""

    def __init__(self, documents: Sequence[str]) -> None:
        """Count the words of all documents."""
        self._documents = tuple(documents)
        self._counts = [Counter(words(text)) for text in documents]
        self._lengths = [count.total() for count in self._counts]
        self._mean = sum(self._lengths) / max(1, len(self._lengths)) or 1.0
        self._holding = Counter(word for count in self._counts for word in count)

    def scores(self, query: str) -> list[float]:
        """Return the BM25 score of every document, in the corpus' order; 0 if no word is shared."""
        query_words = dict.fromkeys(words(query))
        return [
            math.fsum(self._weight(word, count[word], length) for word in query_words if count[word])
            for count, length in zip(self._counts, self._lengths, strict=True)
        ]

    def _weight(self, word: str, often: int, length: int) -> float:
        holding, total = self._holding[word], len(self._counts)
        idf = math.log(1 + (total - holding + 0.5) / (holding + 0.5))
        return idf * often * (K1 + 1) / (often + K1 * (1 - B + B * length / self._mean))

    def best(self, query: str, count: int = 1) -> list[str]:
        """Return up to `count` documents that share a word with the query, by score, then in order."""
        scores = self.scores(query)
        order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
        return [self._documents[number] for number in order[:count] if scores[number] > 0]


class SearchTool:
    """Tool `search`: `search: WORDS` → the document that fits best."""

    usage = "WORDS: the document of the corpus that fits best"

    def __init__(self, documents: Sequence[str]) -> None:
        """Make the index of the documents."""
        self._index = Index(documents)

    def run(self, arguments: str) -> str:
        """Return the text of the best document. Raises ToolError if none has any of the words."""
        documents = self._index.best(arguments)
        if not documents:
            raise ToolError("no document has these words")
        return documents[0]
