import ByteStreams

/// Reads settings from environment variables and flags.
extension ConfigurationLoader {
  mutating func applyEnvironment() {
    guard environment.keys.contains(where: { $0.hasPrefix(Self.prefix) }) else { return }
    let all = Setting.all
    for setting in all where !ignored.contains(setting.path) {
      guard let text = environment[setting.environmentName] else { continue }
      apply(text, to: setting, "environment variable \(setting.environmentName)")
    }
    warnOfUnknownVariables(all)
  }

  /// Sets the settings of `--set`.
  mutating func apply(assignments: [(path: String, value: String)]) {
    guard !assignments.isEmpty else { return }
    let all = Setting.all
    for (path, value) in assignments where !ignored.contains(path) {
      let place = "--set \(path)"
      if let setting = all.first(where: { $0.path == path }) {
        apply(value, to: setting, place)
      } else {
        fail(ConfigurationError(place: place, message: Self.unknownPath(path, among: all)))
      }
    }
  }

  private static func unknownPath(_ path: String, among all: [Setting]) -> String {
    for section in ["sessions", "profiles"] where path == section || path.hasPrefix(section + ".") {
      return "'\(section)' can be set in a file only"
    }
    let inner = all.map(\.path).filter { $0.hasPrefix(path + ".") }
    guard inner.isEmpty else {
      return "'\(path)' is a section: set one of its keys, such as \(inner[0])"
    }
    return "no such setting" + Suggestion.text(Suggestion.nearest(toName: path, among: all.map(\.path), separator: "."))
  }

  /// Sets `setting` from a text. In this text, the elements of a list are separated by commas, and a structure is YAML.
  private mutating func apply(_ text: String, to setting: Setting, _ place: String) {
    if setting.isStructured {
      applyStructure(text, to: setting, place)
      return
    }
    do throws(ConfigurationError) {
      let whole = try read(text, for: setting, place)
      set(setting, setting.isList ? split(whole, for: setting) : [whole], isSingle: !setting.isList, place)
    } catch {
      fail(setting, error)
    }
  }

  private static let prefix = "DRAWBRIDGE_"

  /// Variables that are not settings: the paths of the file and of the built-in profile, and the variables for the
  /// commands that are clients.
  private static let variablesOfCommands = ["CONFIG", "PROFILE", "URL", "TOKEN_FILE", "CA_FILE"]

  /// Returns the elements of a list in a variable. References are replaced before the text is split, since a file or
  /// another variable may contain several elements.
  private func split(_ whole: WrittenValue, for setting: Setting) -> [WrittenValue] {
    let separator: Character = setting.isMapping ? "\n" : ","
    let values = whole.value.split(separator: separator).map(trimmed)
    let texts = whole.text.split(separator: separator).map(trimmed)
    return values.enumerated().map { index, value in
      // If the replacement changed the number of elements, each element is displayed as the whole original text.
      WrittenValue(value: value, text: texts.count == values.count ? texts[index] : whole.text, place: whole.place)
    }
  }

  /// Warns of unknown variables with the prefix `DRAWBRIDGE_`. They are not errors, since the environment may contain
  /// them for other reasons.
  private mutating func warnOfUnknownVariables(_ all: [Setting]) {
    let known = Set(all.map(\.environmentName)).union(Self.variablesOfCommands.map { Self.prefix + $0 })
    for name in environment.keys.sorted() where name.hasPrefix(Self.prefix) && !known.contains(name) {
      guard !ServiceLink.isLink(name, value: environment[name] ?? "") else { continue }
      let reason: String
      if name.hasPrefix(Self.prefix + "SESSIONS_") {
        reason = "named sessions cannot be configured by variables: use 'sessions' in the file, where ${env:NAME} works"
      } else if name.hasPrefix(Self.prefix + "PROFILES_") {
        reason = "profiles cannot be configured by variables: use 'profiles' in the file, where ${env:NAME} works"
      } else {
        reason =
          "no such setting"
          + Suggestion.text(Suggestion.nearest(toName: name, among: known.sorted(), separator: "_"))
      }
      warn(ConfigurationError(place: "environment variable \(name)", message: reason + "; it is ignored"))
    }
  }

  /// Reads a structured setting from a variable, which contains the same YAML as the file would. Messages and pointers
  /// need no quotes.
  private mutating func applyStructure(_ text: String, to setting: Setting, _ place: String) {
    do throws(ConfigurationError) {
      let node: YAMLNode
      if case .structure(isText: true, _) = setting.shape {
        node = YAMLNode(value: .scalar(text), line: 1, column: 1)
      } else {
        node = try YAMLDocument.read(Array(text.utf8), file: place) ?? YAMLNode(value: .scalar(""), line: 1, column: 1)
      }
      set(setting, node, place) { _ in place }
    } catch {
      fail(setting, error)
    }
  }

  private func trimmed(_ text: Substring) -> String {
    var text = text
    while text.first == " " { text.removeFirst() }
    while text.last == " " { text.removeLast() }
    return String(text)
  }

  mutating func apply(flags: [(name: String, value: String)]) {
    guard !flags.isEmpty else { return }
    for setting in Setting.all {
      guard let flag = setting.flag, !ignored.contains(setting.path) else { continue }
      var list: [WrittenValue] = []
      for given in flags where given.name == flag {
        let place = "--\(flag)"
        do throws(ConfigurationError) {
          let value = try read(given.value, for: setting, place)
          list = setting.isList ? list + [value] : [value]
          set(setting, list, isSingle: !setting.isList, place)
        } catch {
          fail(setting, error)
        }
      }
    }
  }
}
