// Sample messages of a shop with every outcome, so that no page is empty.

/**
 * Sends mail with every outcome and its webhooks, and advances the clock. Returns the identifiers by the name of the
 * outcome.
 */
export async function createSampleMail(instance, hook) {
  if (hook) await instance.ask("POST", "/v1/webhooks", { url: hook, description: "Order status" });
  const note = "asked by telephone, wants no mail at all, not even invoices";
  await instance.ask("POST", "/v1/suppressions", { email: "gone@example.org", note });
  const key = { name: "Dashboard of the warehouse, read by the night shift", scopes: ["read"] };
  await instance.ask("POST", "/v1/keys", key);
  const sent = {};
  const to = (name) => `${name}+sample@simulator.test`;
  const write = async (name, members) => {
    sent[name] = await instance.send({ to: to(name), ...members });
  };
  await write("delivered", {
    from_name: "Harbour Books",
    subject: "Your order 10482 is on its way",
    text: "Hello Ann,\n\nyour parcel left our warehouse this morning.\n\nHarbour Books",
    html: LETTER,
    headers: { "X-Order": "10482" },
    metadata: { order: "10482", customer: "c_7731" },
    unsubscribe_url: "https://example.test/unsubscribe/7731",
  });
  await write("bounced", { subject: "Confirm your address" });
  await write("blocked", { subject: "Your invoice for November" });
  await write("deferred", { subject: "Your sign-in code" });
  await write("full", { subject: "A reply to your question" });
  await write("complained", { subject: "Ten books for long evenings" });
  await write("late-bounce", { subject: "Your library card" });
  await instance.send(
    {
      from: "letters@news.example.test",
      to: "delivered+news@simulator.test",
      subject: "What we read in autumn",
      unsubscribe_url: "https://example.test/unsubscribe/1",
    },
    instance.info.marketing_api_key,
  );
  await instance.advance(0);
  await instance.advance(90);
  return sent;
}

const LETTER = `<html><body style="font-family: Georgia, serif; color: #222">
<h1 style="font-size: 20px">On its way</h1><p>Hello Ann,</p>
<p>your parcel left our warehouse <b>this morning</b>.</p><img src="https://images.example.test/parcel.png" alt="">
<p>Harbour Books</p></body></html>`;
