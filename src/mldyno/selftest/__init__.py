"""The product measures its own error rates, on this machine and on series whose truth is known."""
