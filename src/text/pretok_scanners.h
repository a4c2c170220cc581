/* The scanners of regular expressions, for the table of names. */
#ifndef TEXT_PRETOK_SCANNERS_H
#define TEXT_PRETOK_SCANNERS_H

#include "text/pretok.h"

pretok_scanner pretok_bloom, pretok_cjk_kana, pretok_cjk_wide, pretok_deepseek3, pretok_default,
    pretok_default_cut, pretok_digit_run, pretok_falcon, pretok_gpt4o, pretok_kimi, pretok_llama3,
    pretok_llama3_ascii, pretok_newline, pretok_number_1, pretok_number_3, pretok_numbers, pretok_qwen2,
    pretok_qwen2_ascii, pretok_qwen35, pretok_seed_coder, pretok_smollm, pretok_spaced_letters,
    pretok_spaced_punctuation, pretok_tekken, pretok_three_digits;

#endif
