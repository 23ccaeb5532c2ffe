/// One thing that can be set: its name in the file, what it takes, what it is for, and where its value lives. From this the file, the
/// environment, the flags and the help are all read.
///
/// The tables (`Settings+HTTP.swift` and its neighbours) declare them with a `SettingScope`.
package struct Setting {
  /// Dotted path in the file, such as `upstream.heartbeat.interval`.
  package let path: String
  /// One line for `--help` and for the manual.
  package let summary: String
  /// Flag on the command line, without dashes; nil where only file and environment set it.
  package let flag: String?
  /// A secret is never shown.
  package let isSecret: Bool
  /// What a value looks like, for help and errors.
  package let expectation: String
  /// Whether a reload changes it while the process runs.
  package let isReloadable: Bool
  /// Whether its value is a URL, or several, of which userinfo and query may be secret.
  let isURL: Bool
  let shape: Shape
  /// The value as it would stand in the file.
  package let show: (GatewaySettings) -> String
  /// Copies the value.
  package let copy: (_ source: GatewaySettings, _ target: inout GatewaySettings) -> Void
  private let words: [String]

  /// How the setting is written, and how it is set.
  enum Shape {
    case scalar((String, inout GatewaySettings) throws(InvalidValue) -> Void)
    /// `isMapping`: its values are `key: value` pairs.
    case list(isMapping: Bool, ([String], inout GatewaySettings) throws(InvalidValue) -> Void)
    /// It is made of YAML. `isText`: one plain value, which needs no quotes in a variable.
    case structure(isText: Bool, (StructureReader, YAMLNode, inout GatewaySettings) throws(ConfigurationError) -> Void)
  }

  init<Value>(
    _ path: String, _ value: WritableKeyPath<GatewaySettings, Value>, _ form: ValueForm<Value>, _ summary: String,
    flag: String?, isSecret: Bool, isReloadable: Bool
  ) {
    self.path = path
    self.summary = summary
    self.flag = flag
    self.isSecret = isSecret
    self.isReloadable = isReloadable
    expectation = form.expectation
    words = form.words
    isURL = form.isURL
    show = { form.show($0[keyPath: value]) }
    copy = { $1[keyPath: value] = $0[keyPath: value] }
    shape =
      switch form.reader {
      case .scalar(let read):
        .scalar { text, settings throws(InvalidValue) in settings[keyPath: value] = try read(text) }
      case .list(let isMapping, let read):
        .list(isMapping: isMapping) { texts, settings throws(InvalidValue) in settings[keyPath: value] = try read(texts)
        }
      case .structure(let isText, let read):
        .structure(isText: isText) { reader, node, settings throws(ConfigurationError) in
          settings[keyPath: value] = try read(reader, node, path)
        }
      }
  }

  /// `DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL` for `upstream.heartbeat.interval`.
  package var environmentName: String {
    "DRAWBRIDGE_" + path.uppercased().map { $0 == "." ? "_" : String($0) }.joined()
  }

  /// The accepted word nearest to `word`, as a part of an error.
  func suggestion(for word: String) -> String { Suggestion.text(for: word, among: words) }

  var isList: Bool { if case .list = shape { true } else { false } }

  /// Whether its values are `key: value` pairs.
  var isMapping: Bool { if case .list(isMapping: true, _) = shape { true } else { false } }

  /// Whether it is made of YAML, so that `StructureReader` reads it.
  package var isStructured: Bool { if case .structure = shape { true } else { false } }
}
