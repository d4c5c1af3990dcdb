// Prints what the declarations of a package say, as the compiler reads them. Its arguments are the compiler's
// library and the file.
const ts = require(process.argv[2]);
const program = ts.createProgram([process.argv[3]], {
  strict: true, target: ts.ScriptTarget.ES2022,
  lib: ["lib.es2022.d.ts"], // the browser's, which is the largest, tells nothing here
});
const checker = program.getTypeChecker();
const file = program.getSourceFile(process.argv[3]);

const isOwn = (symbol) => symbol?.declarations?.some((d) => d.getSourceFile() === file) ?? false;
const membersOf = (type) => checker.getPropertiesOfType(type).filter(isOwn);
const isMethod = (symbol) => (symbol.flags & ts.SymbolFlags.Method) !== 0;
const typeOf = (symbol) => checker.getTypeOfSymbolAtLocation(symbol, file);

// The members of a type, in depth; where it is one of several words, these, without the empty one.
function shape(of) {
  const type = checker.getNonNullableType(of);
  if (checker.isArrayType(type)) return [shape(checker.getTypeArguments(type)[0])];
  if (type.isUnion() && type.types.every((t) => t.isStringLiteral())) {
    return type.types.map((t) => t.value).filter((word) => word !== "").sort().join("|");
  }
  if (!isOwn(type.symbol)) return "";
  return Object.fromEntries(membersOf(type).filter((m) => !isMethod(m)).map((m) => [m.name, shape(typeOf(m))]));
}

// What a call takes: the members of an object that is declared here, or the parameter's name.
function parameters(call) {
  return checker.getSignaturesOfType(typeOf(call), ts.SignatureKind.Call)[0].parameters.flatMap((p) => {
    const type = checker.getNonNullableType(typeOf(p));
    return isOwn(type.symbol) ? membersOf(type).map((m) => m.name) : [p.name];
  });
}

const said = { exports: [], methods: {}, calls: {}, types: {}, all: {} };
for (const symbol of checker.getExportsOfModule(checker.getSymbolAtLocation(file))) {
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  const isType = (symbol.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Interface)) !== 0;
  said.all[symbol.name] = isType ? membersOf(type).map((m) => m.name) : [];
  if (symbol.flags & ts.SymbolFlags.Value) said.exports.push(symbol.name);
  if (symbol.flags & ts.SymbolFlags.Class) {
    said.methods[symbol.name] = membersOf(type).filter(isMethod).map((m) => m.name);
  }
  if (isType) said.types[symbol.name] = shape(type);
  if (symbol.name === "Client") {
    for (const m of membersOf(type).filter(isMethod)) said.calls[m.name] = parameters(m);
  }
}
console.log(JSON.stringify(said));
