package problem

// The codes of what can be wrong with one field of a request, in addition to the callback_url_… codes of
// package urlpolicy. They never change their meaning.
const (
	FaultMissing   = "missing"   // a required field is missing
	FaultValue     = "value"     // a string that is not one of the allowed values
	FaultType      = "type"      // not a string; for the body as a whole: not an object
	FaultLength    = "length"    // a string that is empty or too long
	FaultDuplicate = "duplicate" // a name occurs twice in one object
	FaultEncoding  = "encoding"  // not UTF-8, or half of a surrogate pair
	FaultSyntax    = "syntax"    // not JSON (RFC 8259)
	FaultTrailing  = "trailing"  // something follows the JSON object
	FaultHeader    = "header"    // Field is a header's name
	FaultParameter = "parameter" // Field is a query parameter's name
	FaultUnknown   = "unknown"   // a name that the body of this request cannot have
)
