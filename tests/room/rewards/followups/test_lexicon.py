"""Where words of a list occur, against the plain way to look for them."""

from collections.abc import Iterator, Sequence

import pytest

from penstock_jobs.rewards.followups import speech
from penstock_jobs.rewards.followups.features import CUES, SIGNS
from penstock_jobs.rewards.followups.speech import SPEECH_WORD, Hit, Lexicon, lexicon, speech_of
from tests.support.labelled_messages import HELD_OUT, TRAINING, labelled_messages

TEXTS = [
    example.message.text for name in (*TRAINING, HELD_OUT) for example in labelled_messages(name)
]


def plain_hits(words_list: Lexicon, words: Sequence[str], text: str) -> Iterator[Hit]:
    for at, word in enumerate(words):
        stems = [words_list.stems.get(word[:length], ()) for length in range(3, len(word) + 1)]
        groups = dict.fromkeys(frozenset(words_list.phrases.get(word, ())).union(*stems), 1)
        for length in (2, 3, 4):
            phrase = " ".join(words[at : at + length])
            if len(words) >= at + length:
                groups |= dict.fromkeys(words_list.phrases.get(phrase, ()), length)
        for group, length in groups.items():
            yield Hit(group, at, length)
    for group, pattern in words_list.unspaced.items():
        for match in pattern.finditer(text):
            yield Hit(group, match.start(), len(match[0]), unspaced=True)


@pytest.mark.parametrize("file", [CUES, SIGNS])
def test_hits_are_those_of_the_plain_way(file: str) -> None:
    words_list = lexicon(file)
    found = 0
    for text in map(str.lower, TEXTS):
        words = SPEECH_WORD.findall(text)
        hits = words_list.hits(words, text)
        plain = plain_hits(words_list, words, text)
        assert sorted(hits, key=str) == sorted(plain, key=str), text
        found += len(hits)
    assert found > len(TEXTS)


def test_lines_of_programs_are_looked_for_only_where_there_may_be_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is said is the same as if each line were searched."""
    printed = (
        "Traceback (most recent call last):\n  File \"a.py\", line 3", "ValueError: no",
        "    at foo.bar(a.js:3)", "panic: oh", "\tmain.go:17", "error[E0308]: mismatched",
        "ld: symbol(s) not found", "Caused by: it", "2026-11-02 10:00 WARN slow", "12 failed",
    )  # fmt: skip
    texts = [f"{text}\n{row}\nno" for text in TEXTS[:200] for row in printed]
    texts += [f"{text}\n```\n{row}\n``` {row}" for text in TEXTS[:50] for row in printed]
    said = [speech_of(text) for text in TEXTS + texts]
    is_pasted = speech._is_pasted
    monkeypatch.setattr(speech, "_is_pasted", lambda line, _programs: is_pasted(line, True))
    assert said == [speech_of(text) for text in TEXTS + texts]
