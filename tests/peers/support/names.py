"""A name server that misbehaves on purpose, which a real one can't be configured to do."""

import socketserver
import threading

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from .wait import LOOPBACK

SERVFAIL = "SERVFAIL"
SILENT = "SILENT"


class Names:
    """Answers only from its table: addresses, SERVFAIL or nothing at all. A name outside the table is NXDOMAIN.

    An entry `*.parent` stands for every name one label below `parent`. TTLs are one second."""

    def __init__(self, table: dict[str, list[str] | str]):
        self.table, self.asked = table, []
        names = self

        class Handler(socketserver.BaseRequestHandler):
            """One query."""

            def handle(self):
                packet, reply_socket = self.request
                answer = names.answer(packet)
                if answer is not None:
                    reply_socket.sendto(answer, self.client_address)

        self.server = socketserver.ThreadingUDPServer((LOOPBACK, 0), Handler)
        self.server.daemon_threads = True
        self.address = f"{LOOPBACK}:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, packet: bytes) -> bytes | None:
        """Returns the answer's bytes, or none if the table says silence."""
        query = dns.message.from_wire(packet)
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True).lower()
        self.asked.append(name)
        entry = self.table.get(name, self.table.get("*." + name.partition(".")[2]))
        answer = dns.message.make_response(query, recursion_available=True)
        answer.flags |= dns.flags.AA
        if entry == SILENT:
            return None
        if entry is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif entry == SERVFAIL:
            answer.set_rcode(dns.rcode.SERVFAIL)
        else:
            wanted = dns.rdatatype.to_text(question.rdtype)
            fitting = [address for address in entry if wanted == ("AAAA" if ":" in address else "A")]
            if fitting:
                answer.answer.append(dns.rrset.from_text(question.name, 1, "IN", wanted, *fitting))
        return answer.to_wire()

    def close(self):
        """Stops answering."""
        self.server.shutdown()
        self.server.server_close()
