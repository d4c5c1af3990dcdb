package signin_test

// The orders of TestForwardingInEveryOrder, in the steps of type forwarding.

var codeOrders = map[string]string{
	"the attacker opens first": `
		a open
		v open
		v press
		v sign
		v sees One more step
		a press
		a sees The code is in another browser
		a open
		a sees The code is in another browser`,
	"the victim opens first": `
		v open
		a open
		v press
		a press
		a sees Started in another browser
		v sign
		v sees One more step
		a open
		a sees The code is in another browser`,
	"the attacker begins first, and is taken over from": `
		a open
		a press
		v open
		v sees Started in another browser
		wait
		v open
		v press
		v sign
		v sees One more step
		a sign
		a sees The code is in another browser`,
	"the victim begins first, and is taken over from": `
		v open
		v press
		wait
		a open
		a press
		v sign
		v sees Started in another browser
		a goto v.return
		a sees We lost track of your sign-in`,
	"the victim goes on with what the attacker began": `
		a open
		a press
		v goto a.network
		v sign
		v sees We lost track of your sign-in
		a goto v.return
		a sees did not finish
		v goto v.return
		v sees We lost track of your sign-in
		a goto v.return
		a sees may still be checking it`,
	"the attacker goes on with what the victim began": `
		v open
		v press
		a goto v.network
		a sign
		a sees We lost track of your sign-in
		v goto a.return
		v sees did not finish
		v press
		v sign
		v sees One more step
		a goto v.return
		a sees We lost track of your sign-in`,
	"the return is replayed before": `
		v open
		v press
		v answers
		a goto v.return
		a sees We lost track of your sign-in
		v goto v.return
		v sees did not finish
		v press
		v sign
		v sees One more step`,
	"the return is replayed afterwards": `
		v open
		v press
		v sign
		v sees One more step
		a goto v.return
		a sees We lost track of your sign-in
		v goto v.return
		v sees One more step
		a open
		a goto v.return
		a sees We lost track of your sign-in`,
	"both begin, and go on with what the other began": `
		a open
		a press
		wait
		v open
		v press
		v goto a.network
		v sign
		v sees We lost track of your sign-in
		a goto v.network
		a sign
		a sees We lost track of your sign-in
		a goto v.return
		a sees Started in another browser
		v goto a.return
		v sees did not finish
		v press
		v sign
		v sees One more step`,
}

var accountOrders = map[string]string{
	"the attacker proves the account, and the victim goes on": `
		a open
		a press
		a sign
		a sees One sign-in is left
		v open
		v sees Started in another browser
		wait
		v open
		v press
		v sign
		v sees You were not verified`,
	"the victim opens and begins first": `
		v open
		v press
		a open
		a sees Started in another browser
		wait
		a open
		a press
		a sign
		a sees One sign-in is left
		v sign
		v sees Started in another browser`,
	"the attacker begins first, and is taken over from": `
		a open
		a press
		a sign
		a press
		wait
		v open
		v press
		a sign
		a sees Started in another browser
		v sign
		v sees You were not verified`,
	"the victim signs in where the attacker has proven the account": `
		a open
		a press
		a sign
		a sees One sign-in is left
		a press
		v goto a.network
		v sign
		v sees We lost track of your sign-in
		a goto v.return
		a sees did not finish
		v goto v.return
		v sees We lost track of your sign-in`,
	"the victim goes on with what the attacker began": `
		a open
		a press
		v goto a.network
		v sign
		v sees We lost track of your sign-in
		a goto v.return
		a sees did not finish`,
	"the attacker proves the account in what the victim began": `
		v open
		v press
		a goto v.network
		a sign
		a sees We lost track of your sign-in
		v goto a.return
		v sees did not finish
		v press
		v sign
		v sees You were not verified`,
	"the return is replayed before": `
		v open
		v press
		v answers
		a goto v.return
		a sees We lost track of your sign-in
		v goto v.return
		v sees did not finish`,
	"the return is replayed afterwards": `
		a open
		a press
		a sign
		v goto a.return
		v sees We lost track of your sign-in
		a goto a.return
		a sees may still be checking it
		a open
		a sees One sign-in is left
		wait
		v open
		v goto a.return
		v sees We lost track of your sign-in`,
	"both begin, and go on with what the other began": `
		a open
		a press
		wait
		v open
		v press
		v goto a.network
		v sign
		v sees We lost track of your sign-in
		a goto v.network
		a sign
		a sees We lost track of your sign-in
		v goto a.return
		v sees did not finish
		a goto v.return
		a sees did not finish`,
}
