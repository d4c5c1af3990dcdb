# Prints what the file offers: its calls with their parameters, and the members of its types.
require "json"
require_relative "verifyd"

members = ->(type) { (type.public_instance_methods(false) - %i[inspect]).to_h { |name| [name, ""] } }
calls = (Verifyd::Client.public_instance_methods(false) - %i[inspect]).to_h do |name|
  [name, Verifyd::Client.instance_method(name).parameters.map(&:last)]
end
refused = Verifyd::Refused.new(400, { "errors" => [{}] }, 0)
puts JSON.generate(calls: calls, types: {
  Started: members.call(Verifyd::Started), Result: Verifyd::Result.members.to_h { |name| [name, ""] },
  Refused: members.call(Verifyd::Refused).merge(fields: [refused.fields[0].transform_values { "" }])
})
