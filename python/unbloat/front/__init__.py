"""`reproduce front`: goodput against queueing delay of every cure on every link, beside a sender that knows the link."""
