import ByteStreams
import Conventions

/// Puts the settings together: defaults, then the file, then the environment, then the flags. Everything wrong is found in
/// one go.
package struct ConfigurationLoader {
  /// Reads a file; nil where it cannot be read. Handed in, so that this stays free of the file system.
  package typealias FileReader = (String) -> [UInt8]?

  private let environment: [String: String]
  private let readFile: FileReader
  private var settings = GatewaySettings()
  private var origins: [String: String] = [:]
  private var errors: [ConfigurationError] = []

  /// What came out: the settings, and for each that is not the default where it was set.
  package struct Outcome {
    package let settings: GatewaySettings
    package let origins: [String: String]
  }

  package init(environment: [String: String], readFile: @escaping FileReader) {
    self.environment = environment
    self.readFile = readFile
  }

  /// `flags`: name without dashes and value, in order; a repeated list flag adds up.
  package static func load(
    file: String?, environment: [String: String], flags: [(name: String, value: String)], readFile: @escaping FileReader
  ) throws(ConfigurationErrors) -> Outcome {
    var loader = ConfigurationLoader(environment: environment, readFile: readFile)
    if let file { loader.apply(file: file) }
    loader.applyEnvironment()
    loader.apply(flags: flags)
    loader.checkCredential()
    guard loader.errors.isEmpty else {
      throw ConfigurationErrors(errors: loader.errors)
    }
    return Outcome(settings: loader.settings, origins: loader.origins)
  }

  private mutating func fail(_ place: String, _ message: @autoclosure () -> String) {
    // What nobody will be shown is not worth finding words for.
    guard errors.count < ConfigurationErrors.limit else { return }
    fail(ConfigurationError(place: place, message: message()))
  }

  private mutating func fail(_ error: ConfigurationError) {
    guard errors.count < ConfigurationErrors.limit else { return }
    errors.append(error)
  }

  /// A variable that is not there now will not be there at a dial either.
  private mutating func checkCredential() {
    let name = settings.upstream.conventions.credential.environmentVariable
    guard !name.isEmpty, environment[name] == nil else { return }
    fail(origins["upstream.credential.env"] ?? "upstream.credential.env", "the environment has no variable '\(name)'")
  }

  // MARK: File

  private mutating func apply(file: String) {
    guard let text = readFile(file) else {
      fail(file, "cannot be read")
      return
    }
    do throws(ConfigurationError) {
      guard let root = try YAMLDocument.read(text, file: file) else { return }
      walk(root, path: "", Setting.all, file)
    } catch {
      fail(error)
    }
  }

  private mutating func walk(_ node: YAMLNode, path: String, _ all: [Setting], _ file: String) {
    let place = "\(file):\(node.line):\(node.column)"
    guard case .mapping(let pairs) = node.value else {
      let name = path.isEmpty ? "the file" : "'\(path)'"
      fail(place, "\(name) must hold keys and values, as in 'key: value'")
      return
    }
    var seen: Set<String> = []
    let prefix = path.isEmpty ? "" : path + "."
    let known = childNames(of: prefix, all)
    for (key, value) in pairs {
      let keyPlace = "\(file):\(key.line):\(key.column)"
      guard case .scalar(let name) = key.value else {
        fail(keyPlace, "a key must be a plain word")
        continue
      }
      let full = prefix + name
      guard seen.insert(name).inserted else {
        fail(keyPlace, "'\(full)' is set twice")
        continue
      }
      if let setting = all.first(where: { $0.path == full }) {
        apply(value, to: setting, "\(file):\(value.line):\(value.column)")
      } else if known.contains(name) {
        walk(value, path: full, all, file)
      } else {
        fail(keyPlace, "unknown key '\(full)'\(Suggestion.text(for: name, among: known))")
      }
    }
  }

  private func childNames(of prefix: String, _ all: [Setting]) -> [String] {
    var names: [String] = []
    for setting in all where setting.path.hasPrefix(prefix) {
      let rest = setting.path.utf8.dropFirst(prefix.utf8.count)
      // What belongs together stands together: nearly always the name is the last one's.
      if let last = names.last, rest.starts(with: last.utf8), rest.dropFirst(last.utf8.count).first == UInt8(ascii: ".")
      {
        continue
      }
      let name = String(decoding: rest.prefix { $0 != UInt8(ascii: ".") }, as: UTF8.self)
      if !names.contains(name) { names.append(name) }
    }
    return names
  }

  private mutating func apply(_ node: YAMLNode, to setting: Setting, _ place: String) {
    if setting.isStructured {
      let file = place.prefix { $0 != ":" }
      set(setting, node, place) { "\(file):\($0.line):\($0.column)" }
      return
    }
    switch node.value {
    case .scalar(let text):
      guard let value = interpolate(text, place) else { return }
      set(setting, value.isEmpty && setting.isList ? [] : [value], isSingle: !setting.isList, place)
    case .sequence(let items):
      var values: [String] = []
      for item in items {
        guard case .scalar(let text) = item.value else {
          fail(place, "'\(setting.path)' takes plain values")
          return
        }
        guard let value = interpolate(text, place) else { return }
        values.append(value)
      }
      set(setting, values, isSingle: false, place)
    case .mapping(let pairs):
      guard setting.isMapping else {
        fail(place, "'\(setting.path)' takes \(setting.expectation), not keys")
        return
      }
      var values: [String] = []
      for (key, value) in pairs {
        guard case .scalar(let name) = key.value, case .scalar(let text) = value.value else {
          fail(place, "'\(setting.path)' takes plain names and values")
          return
        }
        guard let content = interpolate(text, place) else { return }
        values.append("\(name): \(content)")
      }
      set(setting, values, isSingle: false, place)
    }
  }

  private mutating func set(_ setting: Setting, _ values: [String], isSingle: Bool, _ place: String) {
    let worked: Bool
    if isSingle, let value = values.first {
      worked = setting.apply(value, to: &settings)
    } else {
      worked = setting.apply(list: values, to: &settings)
    }
    if worked {
      origins[setting.path] = place
    } else {
      let shown = setting.isSecret ? "this value" : "'\(values.joined(separator: ", "))'"
      fail(place, "\(shown) is not right for '\(setting.path)': it takes \(setting.expectation)")
    }
  }

  private mutating func set(
    _ setting: Setting, _ node: YAMLNode, _ origin: String, _ place: @escaping (YAMLNode) -> String
  ) {
    do throws(ConfigurationError) {
      try StructureReader(environment: environment, readFile: readFile, place: place).set(setting, node, in: &settings)
      origins[setting.path] = origin
    } catch {
      fail(error)
    }
  }

  /// Replaces `${env:NAME}` and `${file:PATH}`; a file's last line break is not part of the secret.
  private mutating func interpolate(_ text: String, _ place: String) -> String? {
    var result = ""
    var rest = Substring(text)
    while let start = rest.firstRange(of: "${") {
      result += rest[..<start.lowerBound]
      guard let end = rest[start.upperBound...].firstIndex(of: "}") else {
        fail(place, "'${' is not closed by '}'")
        return nil
      }
      let reference = rest[start.upperBound..<end]
      if reference.hasPrefix("env:") {
        let name = String(reference.dropFirst(4))
        guard let value = environment[name] else {
          fail(place, "the environment has no variable '\(name)'")
          return nil
        }
        result += value
      } else if reference.hasPrefix("file:") {
        let path = String(reference.dropFirst(5))
        guard let bytes = readFile(path) else {
          fail(place, "file '\(path)' cannot be read")
          return nil
        }
        var content = String(decoding: bytes, as: UTF8.self)
        if content.hasSuffix("\n") { content.removeLast() }
        result += content
      } else {
        fail(place, "'${\(reference)}' is neither ${env:NAME} nor ${file:PATH}")
        return nil
      }
      rest = rest[rest.index(after: end)...]
    }
    return result + rest
  }

  // MARK: Environment and flags

  private mutating func applyEnvironment() {
    guard environment.keys.contains(where: { $0.hasPrefix("DRAWBRIDGE_") }) else { return }
    let all = Setting.all
    for setting in all {
      guard let text = environment[setting.environmentName] else { continue }
      let place = "environment variable \(setting.environmentName)"
      if setting.isStructured {
        applyStructure(text, to: setting, place)
        continue
      }
      guard let value = interpolate(text, place) else { continue }
      if setting.isList {
        let separator: Character = setting.isMapping ? "\n" : ","
        set(setting, value.split(separator: separator).map(trimmed), isSingle: false, place)
      } else {
        set(setting, [value], isSingle: true, place)
      }
    }
    let known = Set(all.map(\.environmentName)).union(["DRAWBRIDGE_CONFIG"])
    for name in environment.keys.sorted() where name.hasPrefix("DRAWBRIDGE_") && !known.contains(name) {
      fail("environment variable \(name)", "no such setting\(Suggestion.text(for: name, among: known.sorted()))")
    }
  }

  /// A variable holds what would stand in the file; a message and a pointer need no quotes.
  private mutating func applyStructure(_ text: String, to setting: Setting, _ place: String) {
    do throws(ConfigurationError) {
      let node: YAMLNode
      switch setting.kind {
      case .template, .pointer: node = YAMLNode(value: .scalar(text), line: 1, column: 1)
      default:
        node = try YAMLDocument.read(Array(text.utf8), file: place) ?? YAMLNode(value: .scalar(""), line: 1, column: 1)
      }
      set(setting, node, place) { _ in place }
    } catch {
      fail(error)
    }
  }

  private func trimmed(_ text: Substring) -> String {
    var text = text
    while text.first == " " { text.removeFirst() }
    while text.last == " " { text.removeLast() }
    return String(text)
  }

  private mutating func apply(flags: [(name: String, value: String)]) {
    guard !flags.isEmpty else { return }
    var lists: [String: [String]] = [:]
    for setting in Setting.all {
      guard let flag = setting.flag else { continue }
      for given in flags where given.name == flag {
        let place = "--\(flag)"
        guard let value = interpolate(given.value, place) else { continue }
        if setting.isList {
          lists[flag, default: []].append(value)
          set(setting, lists[flag] ?? [], isSingle: false, place)
        } else {
          set(setting, [value], isSingle: true, place)
        }
      }
    }
  }
}

extension Substring {
  /// Where `word` stands first. (The standard library's own needs its regular-expression module.)
  fileprivate func firstRange(of word: String) -> Range<Index>? {
    var start = startIndex
    while start < endIndex {
      if self[start...].hasPrefix(word) { return start..<index(start, offsetBy: word.count) }
      start = index(after: start)
    }
    return nil
  }
}
