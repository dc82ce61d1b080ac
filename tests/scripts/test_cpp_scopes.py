"""scripts/cpp_scopes.py: the types and functions that it sees in a C++ text."""

from __future__ import annotations

import pytest
from cpp_scopes import CppText


def methods(body: str) -> list[str]:
    """The methods of a class with this body."""
    return CppText(f"class Some final : public Base<int> {{\n{body}\n}};\n").types[0].methods


@pytest.mark.parametrize(
    ("declaration", "method"),
    [
        ("public:\n  void run();", "run"),
        ("[[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }", "is_open"),
        ("explicit Some(int value) : value_{value}, other_(value) {}", "Some"),
        ("~Some() = default;", "~Some"),
        ("Some& operator=(const Some&) = delete;", "operator="),
        ("bool operator<(const Some& other) const;", "operator<"),
        ("void operator()(int value) const;", "operator()"),
        ("explicit operator bool() const { return true; }", "operatorbool"),
        ("template <typename T, typename = std::enable_if_t<(sizeof(T) > 1)>>\n  T get(T* value);", "get"),
        ("template <typename T>\n    requires std::is_enum_v<T>\n  void set(T value);", "set"),
        ("std::function<void(int)> listener() const;", "listener"),
        ('void wait(Deadline deadline = {}, std::string name = "}");', "wait"),
        ("void lock() DROVER_ACQUIRE(mutex_);", "lock"),
        ("virtual std::vector<int> list() const = 0;", "list"),
        ("static auto make(int a) -> std::pair<int, int>;", "make"),
        ("int f() { if (a) { return 1; } auto g = [] { return 2; }; return g(); }", "f"),
    ],
)
def test_method_is_counted_once(declaration: str, method: str) -> None:
    """Declared or defined in the class, with whatever stands around its name."""
    assert methods(declaration) == [method]
    assert methods(f"int before_ = 0;\n{declaration}\nint after_{{3}};") == [method]


@pytest.mark.parametrize(
    "declaration",
    [
        "int value_ = compute(3);",
        "std::function<void(int)> listener_;",
        "std::function<void()> listener_ = [] { run(); };",
        "int (*callback_)(int) = nullptr;",
        "int guarded_ DROVER_GUARDED_BY(mutex_) = 0;",
        "alignas(64) std::atomic<int> word_{0};",
        "friend void swap(Some& one, Some& other);",
        "using Call = void(int);",
        "static_assert(sizeof(int) == 4);",
        "struct Nested {\n  int a = 0;\n};",
        "enum class Kind { one, two };",
        "// void commented();",
        "#define METHOD void defined();",
    ],
)
def test_other_members_are_no_methods(declaration: str) -> None:
    """Data, types, friends, comments and macros."""
    assert methods(declaration) == []


def test_operations_are_names_without_constructors_and_operators() -> None:
    """Overloads are one operation."""
    found = CppText(
        "struct Some {\n  Some();\n  ~Some();\n  bool operator==(const Some&) const;\n  void f();\n  void f(int);\n};"
    )
    assert found.types[0].operations() == {"f"}


def test_types_have_their_namespaces() -> None:
    """Nested namespaces, unnamed ones, members of types, enumerations, aliases and specialisations."""
    text = """
namespace drover {
class Forward;
namespace {
struct Hidden {};
}  // namespace
inline namespace v1 {
enum class Kind : int { one };
}
extern "C" {
struct Plain {
  int a;
};
}
template <typename T>
struct Box {
  struct Item {};
  using Value = T;
};
template <>
struct Box<int> {};
struct stat make() { struct Local {}; return {}; }
}  // namespace drover
namespace drover::ipc {
using Word = int;
using drover::Box;
[[nodiscard]] struct Late {};
}
"""
    found = {(each.name, each.is_at_namespace_scope, each.is_specialisation) for each in CppText(text).types}
    assert found == {
        ("drover::{}::Hidden", True, False),
        ("drover::v1::Kind", True, False),
        ("drover::Plain", True, False),
        ("drover::Box", True, False),
        ("drover::Box::Item", False, False),
        ("drover::Box::Value", False, False),
        ("drover::Box", True, True),
        ("drover::ipc::Word", True, False),
        ("drover::ipc::Late", True, False),
    }
    assert [each.line for each in CppText("\n\nstruct A {\n};\n").types] == [3]


def test_functions_have_their_qualifiers() -> None:
    """Those that are defined at namespace scope."""
    text = """
namespace drover {
void declared();
int free_one(int a) { return a; }
Some::Some(int value) : value_{value} { run(); }
Some::~Some() = default;
std::vector<int> Some::Nested::list() const { return {}; }
template <typename T>
bool Box<T>::operator==(const Box& other) const { return true; }
const int kValue{free_one(3)};
}
"""
    assert [(each.qualifier, each.name) for each in CppText(text).functions] == [
        ("", "free_one"),
        ("Some::", "Some"),
        ("Some::Nested::", "list"),
        ("Box<T>::", "operator=="),
    ]
