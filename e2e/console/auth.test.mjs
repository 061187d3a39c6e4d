// Real authentication: API keys, signed tokens, and an approval that another person gives.

import assert from "node:assert/strict";
import { createHmac, randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import { browser, command, ended, findings, folder, holds, say, serve, until } from "./support.mjs";

const CONFIG = `
store = "sqlite:console.db"

[[auth.jwt]]
name = "corp"
issuer = "https://id.example"
audience = ["agentwire"]
algorithms = ["HS256"]
secret = { file = "jwt.secret" }
claims = { user = "/sub", roles = "/roles" }

[auth.keys]
pepper = { file = "pepper" }

[auth.roles]
member = ["agents:*:run", "agents:*:read", "agents:*:answer", "agents:*:control", "feedback"]
finance = ["agents:*:answer"]

[agents.demo]
upstream = { kind = "demo" }
approve = [{ tool = "confirmAction", approvers = ["role:finance"], four_eyes = true }]
`;

/** A gateway with authentication; API keys and tokens for it. */
async function guarded(t) {
  const made = folder(t);
  const secret = randomBytes(48).toString("base64");
  fs.writeFileSync(path.join(made, "agentwire.toml"), CONFIG);
  fs.writeFileSync(path.join(made, "pepper"), randomBytes(32).toString("base64"));
  fs.writeFileSync(path.join(made, "jwt.secret"), secret);
  const key = (user, ...roles) => command(made, "keys", "create", "--user", user, ...roles.flatMap((role) => ["--role", role]));
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const token = (sub, roles, seconds = 3600) => {
    const claims = { iss: "https://id.example", aud: "agentwire", sub, roles, exp: Math.floor(Date.now() / 1000) + seconds };
    const signed = `${encode({ alg: "HS256", typ: "JWT" })}.${encode(claims)}`;
    return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
  };
  const ada = key("ada", "member");
  const { url } = await serve(t, ["--config", "agentwire.toml"], made);
  return { url, ada, token };
}

async function signIn(page, credential) {
  await page.fill("#signin-token", credential);
  await page.getByRole("button", { name: "Sign in" }).click();
}

test("sign-in by API key and by token; a wrong or old one is refused; sign-out", async (t) => {
  const { url, ada, token } = await guarded(t);
  const chrome = await browser(t);
  for (const options of [{ colorScheme: "light" }, { colorScheme: "dark", viewport: { width: 360, height: 740 } }]) {
    const page = await chrome.page({ ...options, reducedMotion: "reduce" });
    await page.goto(`${url}/console`);
    await page.locator("#signin-token").waitFor();
    assert.deepEqual(await findings(page), [], `sign-in ${JSON.stringify(options)}`);
    for (const wrong of ["aw_nonsense", token("eve", ["member"], -3600), `${token("eve", ["member"]).slice(0, -4)}AAAA`]) {
      await signIn(page, wrong);
      await page.getByRole("alert").waitFor();
      await page.locator("#signin-token").waitFor();
    }
    assert.deepEqual(await findings(page), [], `refused ${JSON.stringify(options)}`);
    await page.close();
  }
  for (const credential of [ada, token("carl", ["member"])]) {
    const page = await chrome.page();
    await page.goto(`${url}/console`);
    await signIn(page, credential);
    await page.waitForSelector("#composer-text");
    await say(page, "hello");
    await ended(page);
    // The credential is in no address, and ends with the tab.
    const kept = await page.evaluate(() => ({ address: location.href, local: JSON.stringify({ ...localStorage }), cookie: document.cookie }));
    for (const text of Object.values(kept)) assert.ok(!text.includes(credential), text);
    await page.reload();
    await ended(page);
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.locator("#signin-token").waitFor();
    await page.reload();
    await page.locator("#signin-token").waitFor();
    assert.deepEqual(page.problems, []);
  }
});

test("four eyes: one person asks, another decides at the desk, the first sees it go on", async (t) => {
  const { url, ada, token } = await guarded(t);
  const chrome = await browser(t);
  const [one, two] = [await chrome.page(), await chrome.page()];
  await one.goto(`${url}/console`);
  await signIn(one, ada);
  await one.waitForSelector("#composer-text");
  await say(one, "confirm");
  await one.locator(".decision").waitFor();
  // The requester is told that somebody else decides, and the question stays.
  await one.getByRole("button", { name: "Approve" }).click();
  await one.getByText("Somebody else has to decide this.").waitFor();
  await one.locator(".decision").waitFor();

  // The other person may decide and nothing else.
  await two.goto(`${url}/console#/decide`);
  await signIn(two, token("bob", ["finance"]));
  const card = two.locator(".decision");
  await card.waitFor();
  const question = await two.locator(".waiting").innerText();
  assert.match(question, /Started by ada[\s\S]*confirmAction[\s\S]*Show a demo[\s\S]*[0-9a-f]{64}/);
  assert.deepEqual(await findings(two), []);
  await two.getByRole("button", { name: "Approve" }).click();
  await card.waitFor({ state: "detached" });

  // The call is the front end's now, and the page of the first person asks for its result.
  await one.getByRole("button", { name: "Confirm", exact: true }).click();
  await until(one, () => document.querySelector(".tool dl")?.innerText.includes("true"));
  await ended(one);
  await one.getByRole("link", { name: "Decisions" }).click();
  await one.locator(".past li").first().waitFor();
  await holds(async () => assert.match(await one.locator(".past").innerText(), /corp\|bob|bob/));
  assert.deepEqual([...one.problems, ...two.problems], []);
});

test("another person at the same tab sees the own questions only", async (t) => {
  const { url, ada, token } = await guarded(t);
  const page = await (await browser(t)).page();
  await page.goto(`${url}/console`);
  await signIn(page, ada);
  await page.waitForSelector("#composer-text");
  await say(page, "confirm");
  await page.locator(".decision").waitFor();
  await page.getByRole("link", { name: "Decisions" }).click();
  await page.locator(".decision").waitFor();
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await signIn(page, token("dora", ["member"]));
  await page.getByText("Nothing waits for you").waitFor();
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await signIn(page, token("bob", ["finance"]));
  await page.locator(".decision").waitFor();
  assert.deepEqual(page.problems, []);
});
