"""Client for Postrider, the self-hosted transactional email service.

    from postrider import Client

    client = Client("https://mail.example.com", "pr_live_...")
    sent = client.send(from_="shop@example.com", to="ann@example.org", subject="Your order", text="Thank you.")
    print(sent["id"])
"""

from ._client import Client
from ._errors import ApiError, SignatureError
from ._webhook import verify

__all__ = ["ApiError", "Client", "SignatureError", "verify"]
__version__ = "0.1.0"
