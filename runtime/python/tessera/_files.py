"""Files of a graph's folder, which somebody else may have touched: no link in it is followed, no pipe waited for, and
what is written is there as a whole or not at all."""

import os
import secrets
import stat

from tessera._native_library import Error


def open_file(folder, name):
    """The regular file of that name in the folder itself, for reading bytes."""
    path = os.path.join(folder, name)
    try:
        kind = os.lstat(path).st_mode
        if stat.S_ISLNK(kind):
            raise Error(
                f"{path}: is a symbolic link\n  note: put the file itself there (cp -L): nothing outside the folder is"
                " read"
            )
        if not stat.S_ISREG(kind):
            raise Error(f"{path}: not a regular file")
        file = os.open(
            path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
    except FileNotFoundError:
        raise Error(f"{path}: no such file") from None
    except OSError:
        raise Error(f"{path}: cannot be opened") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Error(f"{path}: not a regular file")
    return os.fdopen(file, "rb")


def write_file(folder, name, write):
    """`write` gets a new file, which takes the place of whatever has the name then."""
    temporary = os.path.join(folder, f"{name}.{secrets.token_hex(16)}")
    file = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0),
        0o666,
    )
    try:
        with os.fdopen(file, "wb") as f:
            write(f)
        os.replace(temporary, os.path.join(folder, name))
    except BaseException:
        os.remove(temporary)
        raise
