import Sessions

/// Reads the sections of the file.
extension ConfigurationLoader {
  /// A section of the file.
  struct Section {
    /// Its path; empty for the file itself.
    var path = ""
    /// The beginning of all paths in the same session or profile, such as `sessions.market.`; empty at the top of the
    /// file.
    var session = ""
    /// All settings of the same session or profile, or of the top of the file.
    let settings: [Setting]
  }

  /// An error lists the keys of a section if there are at most this many.
  private static var keysListed: Int { 20 }

  mutating func walk(_ node: YAMLNode, _ section: Section, _ file: String) {
    // The section is null if all its lines are commented out.
    if node.isNull { return }
    let prefix = section.path.isEmpty ? "" : section.path + "."
    let known = childNames(of: prefix, section.settings) + (prefix.isEmpty ? ["sessions", "profiles"] : [])
    guard case .mapping(let pairs) = node.value else {
      let name = section.path.isEmpty ? "the file" : "'\(section.path)'"
      let keys = known.count <= Self.keysListed ? known.joined(separator: ", ") : ""
      let hint = keys.isEmpty ? "as in 'key: value'" : "and its keys are \(keys)"
      fail(node.place(in: file), "\(name) must contain keys and values, \(hint)")
      return
    }
    for (name, key, value) in uniquePairs(pairs, prefix, file) {
      let full = prefix + name
      if let setting = section.settings.first(where: { $0.path == full }), !isSection(value, full, section) {
        apply(value, to: setting, file)
      } else if full == NamedSections.sessions.path {
        apply(.sessions, value, file)
      } else if full == NamedSections.profiles.path {
        apply(.profiles, value, file)
      } else if known.contains(name) {
        var inner = section
        inner.path = full
        walk(value, inner, file)
      } else {
        fail(key.place(in: file), Self.unknownKey(name, full, among: known, section))
      }
    }
  }

  /// Whether the value of a setting consists of the keys of a section with the same path, such as `upstream.url`.
  private func isSection(_ value: YAMLNode, _ path: String, _ section: Section) -> Bool {
    guard case .mapping(let pairs) = value.value, !pairs.isEmpty else { return false }
    return section.settings.contains { $0.path.hasPrefix(path + ".") }
  }

  /// Returns the pairs with valid and unique keys. Other keys are errors.
  private mutating func uniquePairs(
    _ pairs: [(key: YAMLNode, value: YAMLNode)], _ prefix: String, _ file: String
  ) -> [(name: String, key: YAMLNode, value: YAMLNode)] {
    var seen: Set<String> = []
    var result: [(String, YAMLNode, YAMLNode)] = []
    for (key, value) in pairs {
      guard case .scalar(let name) = key.value else {
        fail(key.place(in: file), "a key must be plain text")
        continue
      }
      guard seen.insert(name).inserted else {
        fail(key.place(in: file), "'\(prefix)\(name)' is set twice")
        continue
      }
      result.append((name, key, value))
    }
    return result
  }

  /// Sections by name: the sessions, or the profiles.
  private struct NamedSections {
    let path: String
    /// An example of an entry, for the texts of errors.
    let example: String
    let settings: (String) -> [Setting]
    /// Returns the error for an invalid name, or nil for a valid name.
    let refusal: (String) -> String?
    /// Adds an entry with this name. Returns false if there are too many entries.
    let add: (inout ConfigurationLoader, _ name: String, _ place: String) -> Bool
    let tooMany: String

    static var sessions: NamedSections {
      NamedSections(
        path: "sessions", example: "market: {upstream: {url: wss://example.org/feed}}", settings: Setting.named,
        refusal: { name in
          if name == SessionName.default {
            return "the session 'default' is not configured here, but by 'upstream' at the top of the file"
          }
          return SessionName.isValid(name)
            ? nil : "'\(name)' is not a valid name of a session: use \(SessionName.expectation)"
        }, add: { $0.add(session: $1, at: $2) },
        tooMany: "more than \(SessionName.maximumCount) named sessions: run several gateways")
    }

    static var profiles: NamedSections {
      NamedSections(
        path: "profiles", example: "market: {upstream: {url: \"wss://example.org/{symbol}\"}}",
        settings: Setting.profile,
        refusal: { name in
          ProfileName.isValid(name) ? nil : "'\(name)' is not a valid name of a profile: use \(ProfileName.expectation)"
        }, add: { $0.add(profile: $1, at: $2) },
        tooMany: "more than \(ProfileName.maximumCount) profiles: use variables instead")
    }
  }

  private mutating func apply(_ sections: NamedSections, _ node: YAMLNode, _ file: String) {
    if node.isNull || ignored.contains(sections.path) { return }
    guard case .mapping(let pairs) = node.value else {
      fail(node.place(in: file), "'\(sections.path)' must map names to settings, as in '\(sections.example)'")
      return
    }
    for (name, key, value) in uniquePairs(pairs, sections.path + ".", file) {
      let place = key.place(in: file)
      if let refusal = sections.refusal(name) {
        fail(place, refusal)
        continue
      }
      guard sections.add(&self, name, place) else {
        fail(place, sections.tooMany)
        return
      }
      let path = "\(sections.path).\(name)"
      walk(value, Section(path: path, session: path + ".", settings: sections.settings(name)), file)
    }
  }

  /// Suggests a key of the same section with a similar spelling, else a setting elsewhere with the same last part.
  private static func unknownKey(_ name: String, _ full: String, among known: [String], _ section: Section) -> String {
    let inner = full.dropFirst(section.session.count)
    if !section.session.isEmpty, Setting.all.contains(where: { $0.path == inner || $0.path.hasPrefix(inner + ".") }) {
      return "'\(full)' applies to the whole gateway: set it at the top of the file"
    }
    let sibling = Suggestion.nearest(to: name, among: known)
    let suggestion = sibling ?? Suggestion.nearest(toName: full, among: section.settings.map(\.path), separator: ".")
    return "unknown key '\(full)'\(Suggestion.text(suggestion))"
  }

  private func childNames(of prefix: String, _ all: [Setting]) -> [String] {
    var names: [String] = []
    for setting in all where setting.path.hasPrefix(prefix) {
      let rest = setting.path.utf8.dropFirst(prefix.utf8.count)
      // Settings of one section are adjacent, so the previous setting is nearly always in the same subsection.
      if let last = names.last, rest.starts(with: last.utf8), rest.dropFirst(last.utf8.count).first == UInt8(ascii: ".")
      {
        continue
      }
      let name = String(decoding: rest.prefix { $0 != UInt8(ascii: ".") }, as: UTF8.self)
      if !names.contains(name) { names.append(name) }
    }
    return names
  }
}
