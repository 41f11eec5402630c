"""The mailboxes of a receiver: Maildirs in one folder, by local part."""

from pathlib import Path

from .wait import until


class Maildirs:
    """Received mail. A subclass sets `mailboxes` and implements `logged`."""

    mailboxes: Path

    def logged(self) -> str:
        """Returns the server's log so far."""
        raise NotImplementedError

    def mail(self, mailbox: str = "inbox") -> list[bytes]:
        """Returns the messages in a mailbox's Maildir, oldest first."""
        new = self.mailboxes / mailbox / "new"
        files = sorted(new.iterdir(), key=lambda file: file.stat().st_mtime_ns) if new.is_dir() else []
        return [file.read_bytes() for file in files]

    def wait_for_mail(self, count: int = 1, mailbox: str = "inbox") -> list[bytes]:
        """Returns the mailbox once it holds `count` messages."""
        try:
            return until(f"{count} in {mailbox}", lambda: len(m := self.mail(mailbox)) >= count and m)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logged()}") from None
