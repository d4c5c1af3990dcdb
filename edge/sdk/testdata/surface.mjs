// Prints what the package offers to a program that runs: what it exports, and the methods of its classes.
import * as verifyd from "verifyd";

const methods = {};
for (const [name, value] of Object.entries(verifyd)) {
  if (typeof value !== "function" || !value.prototype) continue;
  methods[name] = Object.getOwnPropertyNames(value.prototype).filter((member) => member !== "constructor");
}
console.log(JSON.stringify({ exports: Object.keys(verifyd), methods }));
