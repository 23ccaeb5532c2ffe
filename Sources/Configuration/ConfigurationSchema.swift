import ByteStreams
import Profiles
import Sessions

/// The JSON Schema of the configuration file, made from the declarations of the settings. Editors use it to complete
/// and check keys.
package enum ConfigurationSchema {
  /// The placeholder for the name of a session or profile in a schema that applies to every name.
  private static let name = "NAME"

  /// The schema as JSON, with a final line break.
  package static func text() -> [UInt8] {
    var defaults = GatewaySettings()
    defaults.add(GatewaySettings.NamedSession(name: name))
    defaults.add(SessionProfile(name: name))
    var shared: [(name: String, value: SchemaNode)] = []
    func section(_ settings: [Setting], _ prefix: String) -> SchemaNode {
      .section(members(of: settings, prefix, defaults, &shared))
    }
    let session = section(Setting.named(name), "sessions.\(name).")
    let profile = section(Setting.profile(name), "profiles.\(name).")
    var top = members(of: Setting.all, "", defaults, &shared)
    // A section that is the same for all sessions is written only once, and referred to by `$ref`.
    let upstream = session.member("properties")?.member("upstream") ?? .section([])
    shared.append(("upstream", upstream))
    shared.append(("session", session.replacing("upstream", upstream, by: .reference("upstream"))))
    shared.append(("profile", profile.replacing("upstream", upstream, by: .reference("upstream"))))
    top = top.map { ($0, $1 == upstream ? .reference("upstream") : $1) }
    top.append(("sessions", named("Further sessions by their names.", .reference("session"))))
    top.append(("profiles", named("Settings of the sessions that clients create, by names.", .reference("profile"))))
    var output = ByteQueue()
    let schema = SchemaNode.object(
      [
        ("$schema", .text("http://json-schema.org/draft-07/schema#")), ("title", .text("Configuration of Drawbridge")),
        ("description", .text("Made by 'drawbridge schema'. 'drawbridge check-config' checks more than this schema.")),
      ] + SchemaNode.section(top).members + [("definitions", .object(shared.map { ($0.name, $0.value) }))])
    schema.write(into: &output)
    output.append("\n" as StaticString)
    return [UInt8](copying: output.bytes)
  }

  private static func named(_ description: String, _ value: SchemaNode) -> SchemaNode {
    .object([
      ("description", .text(description)), ("type", .texts(["object", "null"])), ("additionalProperties", value),
    ])
  }

  /// The keys after `prefix`, in the order of the declarations.
  private static func members(
    of settings: [Setting], _ prefix: String, _ defaults: GatewaySettings,
    _ shared: inout [(name: String, value: SchemaNode)]
  ) -> [(String, SchemaNode)] {
    var names: [String] = []
    for setting in settings where setting.path.hasPrefix(prefix) {
      let name = String(setting.path.dropFirst(prefix.count).prefix { $0 != "." })
      if !names.contains(name) { names.append(name) }
    }
    return names.map { name in
      let keys = settings.contains { $0.path.hasPrefix(prefix + name + ".") }
      if let setting = settings.first(where: { $0.path == prefix + name }) {
        let own = node(of: setting, defaults, &shared)
        guard keys else { return (name, own) }
        // The value is either a plain value, or consists of keys.
        let members = members(of: settings, prefix + name + ".", defaults, &shared)
        let section = SchemaNode.object(SchemaNode.section(members).members + [("minProperties", .number("1"))])
        let (texts, plain) = own.split(["description", "default"])
        return (name, .object(texts + [("anyOf", .array([.object(plain), section]))]))
      }
      return (name, .section(members(of: settings, prefix + name + ".", defaults, &shared)))
    }
  }

  private static func node(
    of setting: Setting, _ defaults: GatewaySettings, _ shared: inout [(name: String, value: SchemaNode)]
  ) -> SchemaNode {
    let schema = setting.schema.node(&shared)
    let summary = setting.summary.prefix(1).uppercased() + setting.summary.dropFirst()
    let accepted = ["text", "a list"].contains(setting.expectation) ? "" : " Use \(setting.expectation)."
    var members: [(String, SchemaNode)] = [("description", .text("\(summary).\(accepted)"))]
    if let value = setting.schema.defaultValue(setting.format(defaults)) { members.append(("default", value)) }
    // Draft 7 ignores the other members of an object that has `$ref`, so the reference is put into `allOf`.
    if schema.member("$ref") != nil { return .object(members + [("allOf", .array([schema]))]) }
    return .object(members + schema.members)
  }
}

extension SchemaNode {
  var members: [(String, SchemaNode)] { if case .object(let members) = self { members } else { [] } }

  func member(_ name: String) -> SchemaNode? { members.first { $0.0 == name }?.1 }

  /// The members with these names, and the others.
  func split(_ names: Set<String>) -> (named: [(String, SchemaNode)], others: [(String, SchemaNode)]) {
    (members.filter { names.contains($0.0) }, members.filter { !names.contains($0.0) })
  }

  /// Replaces the property `name` of a section if it has this value.
  func replacing(_ name: String, _ old: SchemaNode, by new: SchemaNode) -> SchemaNode {
    .object(
      members.map { key, value in
        guard key == "properties" else { return (key, value) }
        return (key, .object(value.members.map { ($0, $0 == name && $1 == old ? new : $1) }))
      })
  }
}
