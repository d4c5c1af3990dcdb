// Package fault names what can be wrong with one field of a request, by codes that never change their
// meaning.
package fault

// The codes, in addition to the callback_url_… codes of package urlpolicy.
const (
	Missing   = "missing"   // a required field is missing
	Value     = "value"     // a string that is not one of the allowed values
	Type      = "type"      // not a string; for the body as a whole: not an object
	Length    = "length"    // a string that is empty or too long
	Duplicate = "duplicate" // a name occurs twice in one object
	Encoding  = "encoding"  // not UTF-8, or half of a surrogate pair
	Syntax    = "syntax"    // not JSON (RFC 8259)
	Trailing  = "trailing"  // something follows the JSON object
	Header    = "header"    // Field is a header's name
	Parameter = "parameter" // Field is a query parameter's name
	Unknown   = "unknown"   // a name that the body of this request cannot have
)
