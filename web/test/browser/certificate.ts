// A certificate, self-signed and good for a day: Node reads them, and makes none.

import { generateKeyPairSync, sign } from "node:crypto";

/** A value of ASN.1 in DER, of less than 64 KiB. */
function der(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  const n = body.length;
  const length = n < 0x80 ? [n] : n < 0x100 ? [0x81, n] : [0x82, n >> 8, n & 0xff];
  return Buffer.concat([Buffer.from([tag, ...length]), body]);
}

const sequence = (...parts: Buffer[]) => der(0x30, ...parts);
const bits = (b: Buffer) => der(0x03, Buffer.from([0]), b);
const pem = (of: string, b: Buffer) => `-----BEGIN ${of}-----\n${b.toString("base64").replace(/.{64}/g, "$&\n")}\n-----END ${of}-----\n`;

const ecdsaWithSha256 = sequence(der(0x06, Buffer.from("2a8648ce3d040302", "hex")));
const commonName = der(0x06, Buffer.from("550403", "hex"));
const subjectAltName = der(0x06, Buffer.from("551d11", "hex"));

/** The certificate of a DNS name, and its key, in PEM. */
export function certificateOf(name: string): { cert: string; key: string } {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const at = (day: number) => der(0x17, Buffer.from(new Date(Date.now() + day * 86_400_000).toISOString().replace(/^..|[-T:]|\.\d+/g, "")));
  const who = sequence(der(0x31, sequence(commonName, der(0x0c, Buffer.from(name)))));
  const names = sequence(subjectAltName, der(0x04, sequence(der(0x82, Buffer.from(name)))));
  const signed = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))), // version 3
    der(0x02, Buffer.from([1])),
    ecdsaWithSha256, who, sequence(at(-1), at(1)), who,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(names)),
  );
  return {
    cert: pem("CERTIFICATE", sequence(signed, ecdsaWithSha256, bits(sign("sha256", signed, privateKey)))),
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}
