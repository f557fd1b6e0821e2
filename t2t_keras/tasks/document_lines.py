"""Lines of files of documents: the lines of a span, such as a tag or a block of code, are joined.

`join_lines` reads each line once, at most 2,000 ahead of the document that it yields.
"""

import itertools
import re

_OPENED = re.compile(
    rb"(?i)<!--(?!-?>)|<!doctype[^<>\[]*\[|<[?%]|\{%|</?([a-z!][\w:.-]*)(?=[\s/>])"
    rb"|\{\s*[\w.]+\s*,\s*(?:plural|select)\w*,"
    rb"|^(?:[ \t>]|[-*+][ \t]|\d+[.)][ \t])*"
    rb"(?:(`{3,})(?!.*`)|(~{3,})|(\$\$)(?=[ \t\r]*$|[^$]*[\\^_={}]))"
)
_ENDS = {b"<!--": rb"--!?>", b"<!do": rb"\]\s*>", b"<?": rb"\?>", b"<%": rb"%>", b"{%": rb"%\}"}
_RAW_NAMES = (b"script", b"style", b"pre", b"code", b"svg", b"math")
_FIRST_LINE = re.compile(rb"(?:\xef\xbb\xbf)?(---|\+\+\+|WEBVTT)(?:\s.*)?")
_ENDS |= {b"---": rb"^(?:---|\.\.\.)\s*$", b"+++": rb"^\+\+\+\s*$", b"WEBVTT": rb"^\s*$"}
_KEPT_BYTES = re.compile(
    rb"(?is).*\s(?:translate\s*=\s*[\"']?\s*no\b|translatable\s*=\s*.false"
    rb"|class\s*=[^=]*\bnotranslate\b)"
)
_MOST_LINES = 2_000


def join_lines(lines):
    """Joins the lines of each span that covers several, so that no document ends inside a span.

    Args:
        lines: iterable of bytes, with their ends.

    Yields:
        One item for each line: the line, or the joined lines of a span, then b"" for its others. A
        span of more than 2,000 lines, or without an end, is divided. The time is linear.
    """
    ahead = _LinesAhead(lines)
    while ahead.has(ahead.first):
        line, column = ahead.first, 0
        while place := ahead.end_of_span(line, column):
            line, column = place
        count = line + 1 - ahead.first
        yield b"".join(ahead.take(count))
        yield from [b""] * (count - 1)


class _LinesAhead:
    """Lines that are not yet part of a document; `first` is the number of the first one."""

    def __init__(self, lines):
        self._rest, self._lines, self.first = iter(lines), [], 0
        self._next, self._pairs = {}, {}  # by pattern: what was found, so that lines are read once

    def has(self, line):
        """Returns whether a line exists, and a document that begins at `first` may contain it."""
        missing = min(line - self.first, _MOST_LINES - 1) + 1 - len(self._lines)
        self._lines.extend(itertools.islice(self._rest, max(missing, 0)))
        return line - self.first < len(self._lines)

    def take(self, count):
        """Removes the first lines, and returns them."""
        taken, self._lines = self._lines[:count], self._lines[count:]
        self.first += count
        return taken

    def end_of_span(self, line, column):
        """Returns where the next span ends, (line, column), or its first mark if it has no end;
        None if no span begins in a line at or after a column."""
        text = self._lines[line - self.first]
        if (line, column) == (0, 0) and (opened := _FIRST_LINE.match(text)):
            return self._after(_ENDS[opened[1]], 1, 0) or (0, opened.end())
        if not (opened := _OPENED.search(text, column)):
            return None
        name, fence = opened[1], opened[2] or opened[3]
        mark, at = opened[0].lower(), opened.end()
        if opened[4]:  # a formula, which has no blank line
            end = self._after(rb"\$\$|^\s*$", line, at)
        elif fence:
            end = self._after(rb"^[ \t>]*%c{%d,}\s*$" % (fence[0], len(fence)), line + 1, 0)
        elif name:
            end = self._end_of_element(line, opened.start(), at, name.lower())
        elif mark.startswith(b"{") and mark != b"{%":
            end = self._partner(rb"(\{)|\}", line, opened.start())
        else:
            end = self._after(_ENDS[mark[: 4 if mark.startswith(b"<!") else 2]], line, at)
        return end or (line, at)

    def _end_of_element(self, line, start, at, name):
        """Returns where a tag ends, or its element if that is a span; None if it is not a tag."""
        end = self._after(rb"[<>]", line, at)
        if not end or self._lines[end[0] - self.first][end[1] - 1 : end[1]] == b"<":
            return None
        tag = b"".join(self._lines[line - self.first : end[0] + 1 - self.first])[start:]
        tag = tag[: tag.index(b">") + 1]
        if tag.endswith(b"/>") or tag.startswith(b"</"):
            return end
        if name in _RAW_NAMES:
            return self._after(rb"(?i)</%s\s*>" % name, *end) or end
        if _KEPT_BYTES.match(tag):
            return (
                self._partner(
                    rb"(?i)(<%s(?=[\s>]))|</%s\s*>" % (2 * (re.escape(name),)), line, start
                )
                or end
            )
        return end

    def _after(self, pattern, line, column):
        """Returns where the next match of a pattern ends, or None."""
        at, start, end = self._next.get(pattern, (line, column, 0))
        if (at, start) < (line, column):
            at, start, end = line, column, 0
        while not end and self.has(at):
            match = re.compile(pattern).search(self._lines[at - self.first], start)
            at, (start, end) = (at, match.span()) if match else (at + 1, (0, 0))
        self._next[pattern] = at, start, end
        return (at, end) if end and self.has(at) else None

    def _partner(self, pattern, line, column):
        """Returns where the match ends that closes the one at a place, or None.

        The pattern, bytes, has a group of opening marks, and closing ones.
        """
        at, opened, closed = self._pairs.get(pattern, (0, [], {}))
        if at <= line:
            at, opened, closed = line, [], {}
        while (line, column) not in closed and self.has(at):
            for match in re.finditer(pattern, self._lines[at - self.first]):
                if match[1]:
                    opened.append((at, match.start()))
                elif opened:
                    closed[opened.pop()] = at, match.end()
            at += 1
        self._pairs[pattern] = at, opened, closed
        end = closed.get((line, column))
        return end if end and self.has(end[0]) else None
