"""The peers: other people's servers and clients, run on loopback against the finished binary."""
