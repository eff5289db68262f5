# Debian's /etc/profile sets PATH anew in the shells of terminals, which are login shells.
PATH=/opt/spectrum/bin:$PATH
